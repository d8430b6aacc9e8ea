"""Code for optimistic policies: ``choose`` and, where the estimate is certified, ``radius``.

A policy registers them on its type: ``choose.case(MyPolicy)(optimistic)``.
"""

from typing import Any

from belated.core.jit import inlined_kernel, kernel
from belated.model.protocols import ellipsoid, radius, sqrt_beta
from belated.model.pruning_mean import most_optimistic_mean
from belated.model.state import SLACK, State
from belated.numerics.pruning import DecisionSet, most_optimistic


@inlined_kernel
def certified_width(policy: Any, state: State) -> float:
    """``sqrt_beta`` plus the certified slack of the estimate, which is 0 for exact estimates."""
    return sqrt_beta(policy, state) + state.scalars[SLACK]


@kernel
def optimistic(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    """Chooses the action with the highest upper bound over the policy's confidence set."""
    _, inverse, cap = ellipsoid(policy, state)
    return most_optimistic(state.theta, inverse, cap, radius(policy, state), actions, state.work)


@kernel
def optimistic_mean(
    policy: Any, state: State, slope: float, reach: float, actions: DecisionSet
) -> tuple[int, float, float, float]:
    """Chooses the action with the highest ``mu(x'theta) + slope reach ||x||``, in the norm of W^-1.

    Its width is ``reach ||x||``, on the scale of x'theta.
    """
    row, score, estimate, width = most_optimistic_mean(
        policy.family,
        state.theta,
        state.W_inv,
        state.cap,
        slope * reach,
        actions,
        state.work,
    )
    return row, score, estimate, width / slope
