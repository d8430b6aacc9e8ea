"""Random play until the returned rounds span the space: the first phase of several algorithms."""

import math
from typing import Any

import numpy as np

from belated.core.jit import kernel
from belated.core.types import Vector
from belated.model.protocols import ellipsoid
from belated.model.state import WORK, State
from belated.numerics.linalg import exceeds
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import ACROSS, DecisionSet, most_optimistic
from belated.policies.shared.optimism import certified_width


@kernel
def explored(policy: Any, state: State) -> bool:
    """Returns whether the eigenvalues of ``W - lam I`` have reached ``explore_until``."""
    # where the two are equal, as with unit vectors played once each, rounding must not decide
    bound = (1.0 - 1e-9) * policy.explore_until + policy.lam
    return state.cap[ACROSS] * bound <= 1.0 or exceeds(state.W, bound, state.work[WORK:])


@kernel
def explore(
    state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    """Draws any row with the same probability; its width is infinite: nothing is claimed yet."""
    row = int(rng.random() * actions.rows.shape[0])
    estimate = dot(actions.rows[row], state.theta)
    return row, estimate, estimate, math.inf


@kernel
def fill_equal(out: Vector) -> None:
    """``probabilities`` of a uniform draw."""
    for a in range(out.shape[0]):
        out[a] = 1.0 / out.shape[0]


@kernel
def fill_certain(row: int, out: Vector) -> None:
    """``probabilities`` where ``row`` is played for certain."""
    for a in range(out.shape[0]):
        out[a] = 0.0
    out[row] = 1.0


@kernel
def width_once_explored(policy: Any, state: State) -> float:
    """``radius``: infinite while exploring, when nothing is claimed."""
    return certified_width(policy, state) if explored(policy, state) else math.inf


@kernel
def explore_first(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    """``choose``: explore, then play the action with the highest upper bound."""
    if not explored(policy, state):
        return explore(state, actions, rng)
    return _most_optimistic(policy, state, actions)


@kernel
def chances_of_explore_first(policy: Any, state: State, actions: DecisionSet, out: Vector) -> None:
    """``probabilities`` of ``explore_first``."""
    if explored(policy, state):
        fill_certain(_most_optimistic(policy, state, actions)[0], out)
    else:
        fill_equal(out)


@kernel
def _most_optimistic(
    policy: Any, state: State, actions: DecisionSet
) -> tuple[int, float, float, float]:
    _, inverse, cap = ellipsoid(policy, state)
    reach = certified_width(policy, state)
    return most_optimistic(state.theta, inverse, cap, reach, actions, state.work)
