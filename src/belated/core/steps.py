"""The two steps of a bandit, shared by every driver: decide now, learn when rewards return."""

import math
from typing import Any

import numpy as np

from belated.core.jit import kernel
from belated.core.protocols import choose, refit, take_in
from belated.core.state import History, State, absorb, append
from belated.core.types import Integers, Matrix, Vector


@kernel
def longest(actions: Matrix) -> float:
    """Norm of the longest row; infinite where a number is not finite."""
    most = 0.0
    for a in range(actions.shape[0]):
        square = 0.0
        for i in range(actions.shape[1]):
            v = float(actions[a, i])  # Python's float: its overflow is infinite, without a warning
            square += v * v
        if square != square:
            return math.inf
        most = max(most, square)
    return math.sqrt(most)


@kernel
def decide_step(
    policy: Any,
    state: State,
    history: History,
    actions: Matrix,
    max_norm: float,
    rng: np.random.Generator | None,
) -> tuple[int, int, float, float, float]:
    """Choose and record: history row, row of ``actions``, score, estimate, width.

    Row -1, and nothing recorded, where an action is longer than ``max_norm``.
    """
    if longest(actions) > max_norm:
        return -1, 0, 0.0, 0.0, 0.0
    index, score, estimate, width = choose(policy, state, actions, rng)
    row = append(state, history, actions[index])
    return row, index, score, estimate, width


@kernel
def learn_step(
    estimator: Any,
    family: Any,
    state: State,
    history: History,
    rows: Integers,
    rewards: Vector,
) -> None:
    """Absorb the rewards of these history rows, then bring the estimate up to date once."""
    for k in range(rows.shape[0]):
        absorb(state, history, rows[k], rewards[k])
        take_in(estimator, family, state, history.x[rows[k]], rewards[k])
    refit(estimator, family, state, history)
