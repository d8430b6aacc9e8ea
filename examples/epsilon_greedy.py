"""A policy of your own: copy this file, change `choose` and `probabilities`, run it.

A policy is a NamedTuple of parameters, two methods, and kernels registered on its type. This one
plays a random action with probability epsilon and the best-looking one otherwise.
"""

import math
from typing import NamedTuple

import numpy as np

from belated import Bernoulli, Gaussian
from belated.extend import (
    DecisionSet,
    Estimator,
    Family,
    LazyNewton,
    Positive,
    Probability,
    State,
    Vector,
    check_policy,
    choose,
    dot,
    most_optimistic,
    parameters,
    probabilities,
)


@parameters
class EpsilonGreedy(NamedTuple):
    """Explore at random with probability epsilon. No guarantee.

    Parameters
    ----------
    epsilon
        Probability of a random action.
    lam
        The ridge.
    """

    epsilon: Probability = 0.1
    lam: Positive = 1.0

    def resolve(self, family: Family, dim: int, max_norm: float) -> "EpsilonGreedy":
        """Nothing is left open that would have to be derived from the family."""
        return self

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate with ridge lam."""
        return LazyNewton(lam=self.lam, kappa=1.0, radius=math.inf, tol=1e-2, order=2)


@choose.case(EpsilonGreedy)
def _choose(
    policy: EpsilonGreedy, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    if rng.random() < policy.epsilon:
        row = int(rng.random() * actions.rows.shape[0])
        estimate = dot(actions.rows[row], state.theta)
        return row, estimate, estimate, 0.0
    return most_optimistic(state.theta, state.W_inv, state.cap, 0.0, actions, state.work)


@probabilities.case(EpsilonGreedy)
def _probabilities(policy: EpsilonGreedy, state: State, actions: DecisionSet, out: Vector) -> None:
    best = most_optimistic(state.theta, state.W_inv, state.cap, 0.0, actions, state.work)[0]
    for a in range(out.shape[0]):
        out[a] = policy.epsilon / out.shape[0]
    out[best] += 1.0 - policy.epsilon


if __name__ == "__main__":
    for family in (Gaussian(), Bernoulli()):
        check_policy(EpsilonGreedy(), family)
    print("EpsilonGreedy satisfies everything a policy must")
