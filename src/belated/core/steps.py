"""The two steps of a bandit, shared by every driver: decide now, learn when rewards return."""

from typing import Any

import numpy as np

from belated.core.jit import kernel
from belated.core.protocols import choose, refit, take_in
from belated.core.state import History, State, absorb, append
from belated.core.types import Integers, Matrix, Vector


@kernel
def decide_step(
    policy: Any, state: State, history: History, actions: Matrix, rng: np.random.Generator
) -> tuple[int, int, float, float, float]:
    """Choose and record: history row, row of ``actions``, score, estimate, width."""
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
