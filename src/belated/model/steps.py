"""The steps of a bandit, shared by ``Bandit``, by the fold of a log and by a lane of the engine.

A decision calls ``pick``, then ``record``. A reward calls ``take_reward``; ``catch_up`` follows the
last of several.
"""

from typing import Any

import numpy as np

from belated.core.jit import allocating_kernel, inlined_kernel, kernel
from belated.core.types import Integers, Matrix, Vector
from belated.model.protocols import (
    Estimator,
    ResolvedPolicy,
    choose,
    draw_parameter,
    radius,
    refit,
    remember,
    revise,
    set_norm,
    take_in,
)
from belated.model.state import DECIDED, OBSERVED, History, Nothing, State, absorb, new_state
from belated.numerics.pruning import DecisionSet, decision_set, renew

DECIDE, LEARN, REVISE = 0, 1, 2  # moves of fold_step


def first_state(policy: ResolvedPolicy, estimator: Estimator, dim: int) -> State:
    """Returns the state of a resolved policy before its first decision."""
    new_memory = getattr(policy, "new_memory", None)
    memory = Nothing() if new_memory is None else new_memory(dim)
    return new_state(dim, policy.lam, estimator.new_fit(dim), memory)


@inlined_kernel
def pick(
    policy: Any,
    state: State,
    history: History,
    options: DecisionSet,
    rng: np.random.Generator | None,
) -> tuple[int, float, float, float]:
    """Chooses one of ``options``, records nothing; returns its row, score, estimate and width."""
    draw_parameter(policy, state, history, rng)
    return choose(policy, state, options, rng)


@inlined_kernel
def record(policy: Any, state: State, history: History, row: int, x: Vector) -> None:
    """Records that ``x`` was played, in ``row`` of the history; in no row where ``row`` is -1."""
    if row >= 0:
        for i in range(x.shape[0]):
            history.x[row, i] = x[i]
    state.counts[DECIDED] += 1
    remember(policy, state, x)


@allocating_kernel
def choose_step(
    policy: Any,
    state: State,
    history: History,
    actions: Matrix,
    max_norm: float,
    rng: np.random.Generator | None,
) -> tuple[int, float, float, float]:
    """``pick`` one of ``actions``; row -1 where one of them is longer than ``max_norm``."""
    options = decision_set(actions)
    for a in range(actions.shape[0]):
        if not is_within(actions[a], max_norm):
            return -1, 0.0, 0.0, 0.0
    return pick(policy, state, history, options, rng)


@allocating_kernel
def choose_from_step(
    policy: Any,
    state: State,
    history: History,
    options: DecisionSet,
    rng: np.random.Generator | None,
) -> tuple[int, float, float, float]:
    """``pick`` one of ``options``, whose norms were checked when they were made."""
    return pick(policy, state, history, options, rng)


@allocating_kernel
def decide_step(
    policy: Any,
    state: State,
    history: History,
    actions: Matrix,
    max_norm: float,
    rng: np.random.Generator | None,
) -> tuple[int, int, float, float, float]:
    """Chooses and records; returns history row, row of ``actions``, score, estimate, width.

    Returns row -1 and records nothing where an action is longer than ``max_norm``.
    """
    index, score, estimate, width = choose_step(policy, state, history, actions, max_norm, rng)
    if index < 0:
        return -1, 0, 0.0, 0.0, 0.0
    row = state.counts[DECIDED]
    record(policy, state, history, row, actions[index])
    return row, index, score, estimate, width


@kernel
def is_within(x: Vector, max_norm: float) -> bool:
    """Return whether ``x`` is finite and no longer than ``max_norm``."""
    square = 0.0
    for i in range(x.shape[0]):
        v = float(x[i])  # Python's float: its overflow is infinite, without a warning
        square += v * v
    return square <= max_norm * max_norm


@inlined_kernel
def take_reward(
    estimator: Any, family: Any, state: State, history: History, row: int, y: float
) -> None:
    """Takes in the reward of a history row. ``catch_up`` must follow the last of several."""
    absorb(state, history, row, y)
    take_in(estimator, family, state, history.x[row], y)


@inlined_kernel
def catch_up(estimator: Any, family: Any, state: State, history: History) -> None:
    """Bring the estimate up to date with the rewards taken in."""
    refit(estimator, family, state, history)
    renew(state.cap, state.W, state.W_inv, state.counts[OBSERVED], state.work[0])


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
        take_reward(estimator, family, state, history, rows[k], rewards[k])
    catch_up(estimator, family, state, history)


@kernel
def fold_step(
    policy: Any,
    estimator: Any,
    family: Any,
    state: State,
    history: History,
    moves: Integers,
    X: Matrix,
    rows: Integers,
    rewards: Vector,
    last: Integers,
) -> None:
    """Takes in a run of events, in their order. The history must have room for them.

    A move is DECIDE (the next row of ``X`` was played), LEARN (the reward of a history row
    returned) or REVISE (another reward takes its place). The estimate is brought up to date after
    the moves marked in ``last``, each the last reward of its transaction.
    """
    decided = 0
    for k in range(moves.shape[0]):
        if moves[k] == DECIDE:
            record(policy, state, history, state.counts[DECIDED], X[decided])
            decided += 1
        elif moves[k] == LEARN:
            take_reward(estimator, family, state, history, rows[k], rewards[k])
        else:
            row = rows[k]
            revise(estimator, family, state, history.x[row], history.y[row], rewards[k])
            history.y[row] = rewards[k]
        if last[k]:
            catch_up(estimator, family, state, history)


@inlined_kernel
def covers(policy: Any, state: State, theta_star: Vector) -> bool:
    """Return whether ``theta_star`` is in the confidence set; False where the policy has none."""
    error = state.work[0]
    for i in range(theta_star.shape[0]):
        error[i] = state.theta[i] - theta_star[i]
    return set_norm(policy, state, error) <= radius(policy, state)
