"""The two things that change: the knowledge of a policy, and the history of its decisions.

Arrays only, updated in place, so that one object serves compiled and plain Python code. Scalars
live in two small arrays whose slots are named below.
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.jit import inlined_kernel
from belated.core.types import Integers, Matrix, Vector
from belated.numerics.linalg import grow
from belated.numerics.pruning import new_cap

LOG_DET, ERROR, SLACK = 0, 1, 2  # slots of State.scalars
DECIDED, OBSERVED, PASSES, ROWS = 0, 1, 2, 3  # slots of State.counts

WORK = 10  # rows of scratch, before a matrix of it
REFACTOR_EVERY = 1000  # rank-one updates between fresh inverses


class State(NamedTuple):
    """The knowledge of a policy, in the paper's notation."""

    theta: Vector  # (d,)   estimate from the rewards that have returned
    W: Matrix  # (d, d) lam I + sum of x x' over returned rounds
    W_inv: Matrix  # (d, d) its inverse
    cap: Vector  # (d + 4,) upper bound on W_inv, a little stale: see numerics/pruning.py
    scalars: Vector  # (3,)   log det W, certified error of theta, the same in the norm of W
    counts: Integers  # (4,)   decisions, rewards, full passes, rows in those passes
    work: Matrix  # (WORK + d, d) scratch
    fit: Any  # what the estimator keeps between rewards
    memory: Any  # arrays that the policy itself keeps, in a NamedTuple


class History(NamedTuple):
    """Every decision in the order it was made."""

    x: Matrix  # (capacity, d) chosen feature vectors
    y: Vector  # (capacity,)   rewards; NaN until returned


class Nothing(NamedTuple):
    """The memory of a policy that needs none."""


def new_state(dim: int, lam: float, fit: Any, memory: Any = Nothing()) -> State:  # noqa: B008
    """Returns the state before the first decision."""
    scalars = np.zeros(3)
    scalars[LOG_DET] = dim * np.log(lam)
    eye = np.eye(dim)
    return State(
        theta=np.zeros(dim),
        W=lam * eye,
        W_inv=eye / lam,
        cap=new_cap(dim, lam),
        scalars=scalars,
        counts=np.zeros(4, np.int64),
        work=np.zeros((WORK + dim, dim)),
        fit=fit,
        memory=memory,
    )


def new_history(capacity: int, dim: int) -> History:
    """Returns an empty history with room for ``capacity`` decisions."""
    return History(np.zeros((capacity, dim)), np.full(capacity, np.nan))


def grown(history: History) -> History:
    """Returns the same history with room for half as many decisions again."""
    old, dim = history.x.shape
    bigger = new_history(old + old // 2 + 16, dim)
    bigger.x[:old] = history.x
    bigger.y[:old] = history.y
    return bigger


@inlined_kernel
def absorb(state: State, history: History, row: int, y: float) -> None:
    """Records the returned reward of the decision in ``row`` and grows ``W``."""
    history.y[row] = y
    state.counts[OBSERVED] += 1
    fresh = state.counts[OBSERVED] % REFACTOR_EVERY == 0
    state.scalars[LOG_DET] = grow(
        state.W, state.W_inv, state.scalars[LOG_DET], 1.0, history.x[row], fresh, state.work[0]
    )
