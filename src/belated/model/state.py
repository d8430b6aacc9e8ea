"""The two things that change: the knowledge of a policy, and the history of its decisions.

Arrays only, updated in place, so that one object serves compiled and plain Python code. Scalars
live in two small arrays whose slots are named below.
"""

from typing import Any, NamedTuple

import numpy as np

from belated.core.generic import generic_with_default
from belated.core.jit import inlined_kernel
from belated.core.sparse import SparseRows
from belated.core.types import Integers, Matrix, Vector
from belated.numerics.entries import entry, n_entries
from belated.numerics.linalg import grow, inverse_and_log_det
from belated.numerics.lowered.products import add_outer
from belated.numerics.pruning import RENEW_AT, new_cap, renew

LOG_DET, ERROR, SLACK = 0, 1, 2  # slots of State.scalars
DECIDED, OBSERVED, PASSES, ROWS = 0, 1, 2, 3  # slots of State.counts

WORK = 10  # rows of scratch, before a matrix of it
REFACTOR_EVERY = 1000  # rank-one updates between fresh inverses


class State(NamedTuple):
    """The knowledge of a policy, in the paper's notation."""

    theta: Vector  # (d,)   estimate from the rewards that have returned
    W: Matrix  # (d, d) lam I + sum of weight x x' over returned rounds
    W_inv: Matrix  # (d, d) its inverse
    cap: Vector  # (d + 4,) upper bound on W_inv, a little stale: see numerics/pruning.py
    scalars: Vector  # (3,)   log det W, certified error of theta, the same in the norm of W
    counts: Integers  # (4,)   decisions, rewards, full passes, rows in those passes
    work: Matrix  # (WORK + d, d) scratch
    fit: Any  # what the estimator keeps between rewards
    memory: Any  # arrays that the policy itself keeps, in a NamedTuple


NO_WEIGHTS = np.zeros(0)  # every reward counts as much as every other


class History(NamedTuple):
    """Every decision in the order it was made."""

    x: Matrix  # (capacity, d) chosen feature vectors
    y: Vector  # (capacity,)   rewards; NaN until returned
    weight: Vector = NO_WEIGHTS  # (capacity,) what a reward counts for; empty: 1 each


NO_SILENCE = np.zeros(0)  # open decisions say nothing


class SparseHistory(NamedTuple):
    """A history whose rows are lists of their nonzero entries, one row after the other.

    ``silence`` holds, for an open decision, the share of rewards that should have come at its age,
    which is what its silence says: 0, which is nothing, for a decision just made, and for a closed
    one; 1 says that none will come. It is empty where open decisions say nothing.
    """

    starts: Integers  # (capacity + 1,) int64, the first entry of each row
    columns: Integers  # (entries,) int32
    values: Vector  # (entries,)
    y: Vector  # (capacity,)
    weight: Vector = NO_WEIGHTS  # (capacity,)
    silence: Vector = NO_SILENCE  # (capacity,)


class Nothing(NamedTuple):
    """The memory of a policy that needs none."""


def new_state(
    dim: int,
    lam: float,
    fit: Any,
    memory: Any = Nothing(),  # noqa: B008
    designed: bool = True,
) -> State:
    """Returns the state before the first decision, with or without a design matrix."""
    scalars = np.zeros(3)
    scalars[LOG_DET] = dim * np.log(lam)
    side = dim if designed else 0
    eye = np.eye(side)
    return State(
        theta=np.zeros(dim),
        W=lam * eye,
        W_inv=eye / lam,
        cap=new_cap(side, lam) if designed else np.zeros(0),
        scalars=scalars,
        counts=np.zeros(4, np.int64),
        work=np.zeros((WORK + side, dim)),
        fit=fit,
        memory=memory,
    )


def new_history(capacity: int, dim: int) -> History:
    """Returns an empty history with room for ``capacity`` decisions."""
    return History(np.zeros((capacity, dim)), np.full(capacity, np.nan))


def new_sparse_history(capacity: int) -> SparseHistory:
    """Returns an empty sparse history with room for ``capacity`` decisions, and no entries."""
    return SparseHistory(
        np.zeros(capacity + 1, np.int64),
        np.zeros(0, np.int32),
        np.zeros(0),
        np.full(capacity, np.nan),
    )


def grown(history: History) -> History:
    """Returns the same history with room for half as many decisions again."""
    old, dim = history.x.shape
    bigger = new_history(old + old // 2 + 16, dim)
    bigger.x[:old] = history.x
    bigger.y[:old] = history.y
    return bigger._replace(weight=_longer(history.weight, len(bigger.y)))


def _longer(weight: Vector, capacity: int) -> Vector:
    """Returns weights for so many rows, 1 for each new one; empty where there were none."""
    return np.concatenate([weight, np.ones(capacity - len(weight))]) if len(weight) else weight


def with_room(history: SparseHistory, decided: int, rows: int, entries: int) -> SparseHistory:
    """Returns the history with room for further rows with this many entries together."""
    starts, columns, values, y, weight, silence = history
    if decided + rows > len(y):
        more = len(y) // 2 + rows
        starts = np.concatenate([starts, np.zeros(more, np.int64)])
        y = np.concatenate([y, np.full(more, np.nan)])
        weight = _longer(weight, len(y))
        silence = np.concatenate([silence, np.zeros(more)]) if len(silence) else silence
    if starts[decided] + entries > len(values):
        more = len(values) // 2 + entries
        columns = np.concatenate([columns, np.zeros(more, np.int32)])
        values = np.concatenate([values, np.zeros(more)])
    return SparseHistory(starts, columns, values, y, weight, silence)


@inlined_kernel
def weight_of(history: Any, row: int) -> float:
    """Returns what the reward of a row counts for."""
    return history.weight[row] if history.weight.shape[0] > 0 else 1.0


@inlined_kernel
def counts_for(history: Any, row: int) -> bool:
    """Returns whether the reward of a row has returned and weighs anything."""
    return history.y[row] == history.y[row] and weight_of(history, row) > 0.0


@n_entries.case(History)
def _n_dense(history: History, row: int) -> int:
    return history.x.shape[1]


@entry.case(History)
def _dense_entry(history: History, row: int, k: int) -> tuple[int, float]:
    return k, history.x[row, k]


@n_entries.case(SparseHistory)
def _n_sparse(history: SparseHistory, row: int) -> int:
    return history.starts[row + 1] - history.starts[row]


@entry.case(SparseHistory)
def _sparse_entry(history: SparseHistory, row: int, k: int) -> tuple[int, float]:
    at = history.starts[row] + k
    return history.columns[at], history.values[at]


@generic_with_default
def silence_of(history: Any, row: int) -> float:
    """Returns the share of rewards that are due at the age of an open row; 0 for a closed one."""
    return 0.0


@silence_of.case(SparseHistory)
def _sparse_silence(history: SparseHistory, row: int) -> float:
    return history.silence[row] if history.silence.shape[0] > 0 else 0.0


@generic_with_default
def end_silence(history: Any, row: int) -> None:
    """Notes that a row says no more by its silence: its reward has come."""
    return


@end_silence.case(SparseHistory)
def _end_sparse_silence(history: SparseHistory, row: int) -> None:
    if history.silence.shape[0] > 0:
        history.silence[row] = 0.0


@generic_with_default
def put(history: Any, row: int, rows: Any, k: int) -> None:
    """Writes row ``k`` of ``rows`` into a row of the history; a sparse history has sparse rows."""
    for i in range(rows.shape[1]):
        history.x[row, i] = rows[k, i]


@put.case(SparseHistory)
def _put_sparse(history: SparseHistory, row: int, rows: SparseRows, k: int) -> None:
    at = history.starts[row]
    for i in range(rows.columns.shape[1]):
        if rows.values[k, i] != 0.0:
            history.columns[at], history.values[at] = rows.columns[k, i], rows.values[k, i]
            at += 1
    history.starts[row + 1] = at


@generic_with_default
def widen_design(history: Any, row: int, state: State, fresh: bool) -> None:
    """Adds the square of a row, times its weight, to ``W``, where the state has one."""
    if state.W.shape[0] > 0:
        state.scalars[LOG_DET] = grow(
            *(state.W, state.W_inv, state.scalars[LOG_DET], weight_of(history, row)),
            *(history.x[row], fresh, state.work[0]),
        )


@widen_design.case(SparseHistory)
def _no_design(history: SparseHistory, row: int, state: State, fresh: bool) -> None:
    return


@generic_with_default
def renew_cap(history: Any, state: State) -> None:
    """Brings the bound on the inverse of ``W`` up to date, where the state has one."""
    if state.W.shape[0] > 0:
        renew(state.cap, state.W, state.W_inv, state.counts[OBSERVED], state.work[0])


@renew_cap.case(SparseHistory)
def _no_cap(history: SparseHistory, state: State) -> None:
    return


@generic_with_default
def remake_design(history: Any, state: State, lam: float) -> None:
    """Computes ``W`` anew from the returned rewards, where the state has one."""
    W, d = state.W, state.W.shape[0]
    if d > 0:
        for i in range(d):
            for j in range(d):
                W[i, j] = 0.0
        for row in range(state.counts[DECIDED]):
            if counts_for(history, row):
                add_outer(W, weight_of(history, row), history.x[row])
        for i in range(d):
            W[i, i] += lam
        state.scalars[LOG_DET] = inverse_and_log_det(W, 0.0, state.W_inv)
        state.cap[RENEW_AT] = 0.0  # a bound on the old inverse is worth nothing


@remake_design.case(SparseHistory)
def _no_design_to_remake(history: SparseHistory, state: State, lam: float) -> None:
    return


@inlined_kernel
def absorb(state: State, history: Any, row: int, y: float) -> None:
    """Records the returned reward of the decision in ``row`` and grows ``W``."""
    history.y[row] = y
    state.counts[OBSERVED] += 1
    widen_design(history, row, state, state.counts[OBSERVED] % REFACTOR_EVERY == 0)
