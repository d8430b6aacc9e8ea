"""An estimator of your own: one step for each reward, and no reward is ever looked at again.

An estimator is a NamedTuple of settings with a method `new_fit`, and two kernels: `take_in` is
called once for each reward that returns, `refit` after the last reward of a round. A policy says
with which estimator it learns. This one moves theta along W^-1 x by what the reward differs from
its forecast; with Gaussian rewards that is ridge regression, for other families an approximation.
"""

from typing import NamedTuple

import numpy as np

from belated import Bernoulli, Gaussian
from belated.extend import (
    DecisionSet,
    Estimator,
    Family,
    History,
    Positive,
    State,
    Vector,
    check_policy,
    choose,
    derivatives,
    deterministic,
    dot,
    matvec,
    mean,
    most_optimistic,
    parameters,
    refit,
    take_in,
)


class Steps(NamedTuple):
    """What the estimator keeps between rewards. Arrays only: they are saved with the bandit."""

    theta: Vector  # (d,)


class OneStep(NamedTuple):
    """`theta += W^-1 x (y - mu(x'theta)) / mu'(0)` for each returned reward."""

    @property
    def order_matters(self) -> bool:
        """True: the result depends on the order in which rewards return."""
        return True

    @property
    def looks_back(self) -> bool:
        """False: a simulation may drop rewards that were taken in."""
        return False

    def new_fit(self, dim: int) -> Steps:
        """The fit before the first reward."""
        return Steps(np.zeros(dim))


@take_in.case(OneStep)
def _take_in(estimator: OneStep, family: Family, state: State, x: Vector, y: float) -> None:
    theta, direction = state.fit.theta, state.work[0]
    surprise = (y - mean(family, dot(x, theta))) / derivatives(family, 0.0)[1]
    matvec(state.W_inv, x, direction)
    for i in range(x.shape[0]):
        theta[i] += direction[i] * surprise


@refit.case(OneStep)
def _refit(estimator: OneStep, family: Family, state: State, history: History) -> None:
    state.theta[:] = state.fit.theta


@deterministic
@parameters
class QuickOptimist(NamedTuple):
    """Optimism of a fixed width around an estimate that costs O(d^2) a reward. No guarantee.

    Parameters
    ----------
    width
        How many standard deviations an action is given credit for.
    lam
        The ridge.
    """

    width: Positive = 1.0
    lam: Positive = 1.0

    def resolve(self, family: Family, dim: int, max_norm: float) -> "QuickOptimist":
        """Nothing is left open that would have to be derived from the family."""
        return self

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The estimator above."""
        return OneStep()


@choose.case(QuickOptimist)
def _choose(
    policy: QuickOptimist, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    return most_optimistic(state.theta, state.W_inv, state.cap, policy.width, actions, state.work)


if __name__ == "__main__":
    for family in (Gaussian(), Bernoulli()):
        check_policy(QuickOptimist(), family)
    print("A policy that learns with OneStep satisfies everything a policy must")
