"""Inverse gap weighting: a probability for every action, known exactly."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Positive, derives, parameters, resolved
from belated.core.jit import kernel
from belated.core.types import Vector
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    mean,
    needs_no_bound,
    probabilities,
)
from belated.model.state import OBSERVED, State
from belated.numerics.lowered.products import dot
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.sampling import unconfined_mle


@needs_no_bound
@derives("family")
@parameters
class InverseGap(NamedTuple):
    """Play the others the less often, the further their mean is below the best: SquareCB.

    With mu_a the estimated mean rewards of K actions, b the best of them and n returned rewards,
    every other action is played with the probability

        p_a = 1 / (K + gamma (mu_b - mu_a)),      gamma = gamma_scale n^exponent,

    and b with the rest, 1 / K at least. The estimate is the penalised maximum likelihood estimate
    of the returned rewards. Propensities are exact, and none is zero. No confidence set.

    Parameters
    ----------
    gamma_scale, exponent
        As above; 0 for gamma_scale is uniform play. The defaults are those of Vowpal Wabbit.
    lam
        Ridge: the penalty is ``lam / 2 ||theta||^2``.

    Assumptions
    -----------
    None: no guarantee is claimed. Theorem 1 of Foster and Rakhlin needs rewards in [0, 1] that
    return at once and a gamma of the order of ``sqrt(K T / R)``, R the regret of the estimator in
    squared error over T rounds.

    Cost
    ----
    A decision: O(K d). A returned reward: as in Delayed OFU-GLM.

    Deviations
    ----------
    Algorithm 1 of Foster and Rakhlin (SquareCB) with mu = K, for rewards, not losses. gamma grows
    with the returned rewards, where the paper fixes it for T rounds: what the estimate knows is
    what has returned. The estimate is that of the family's likelihood, where the paper takes any
    online estimator of squared error. Gaps count in units of the reward: for rewards that are not
    between 0 and 1, gamma_scale should be divided by their range.

    References
    ----------
    D. J. Foster, A. Rakhlin: Beyond UCB: Optimal and Efficient Contextual Bandits with Regression
    Oracles. ICML 2020.
    N. Abe, P. M. Long: Associative Reinforcement Learning using Linear Probabilistic Concepts. ICML
    1999.
    """

    gamma_scale: NotNegative = 10.0
    exponent: NotNegative = 0.5
    lam: Positive = 1.0

    def resolve(self, family: Family, dim: int, max_norm: float) -> "InverseGap":
        """Fill in the family, for its mean."""
        return resolved(accepted(self, family), family=family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate, nowhere near a ball."""
        return unconfined_mle(family, dim, max_norm, self.lam)


@kernel
def _best(policy: Any, state: State, actions: DecisionSet) -> int:
    """Returns the row with the highest estimate, the lowest of several."""
    best, highest = 0, dot(actions.rows[0], state.theta)
    for a in range(1, actions.rows.shape[0]):
        estimate = dot(actions.rows[a], state.theta)
        if estimate > highest:
            best, highest = a, estimate
    return best


@kernel
def _probability(policy: Any, state: State, actions: DecisionSet, best: int, a: int) -> float:
    """Returns the probability of an action other than the best."""
    at_best = mean(policy.family, dot(actions.rows[best], state.theta))
    gap = at_best - mean(policy.family, dot(actions.rows[a], state.theta))
    gamma = policy.gamma_scale * float(state.counts[OBSERVED]) ** policy.exponent
    return float(1.0 / (actions.rows.shape[0] + gamma * gap))


@choose.case(InverseGap)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    best, u = _best(policy, state, actions), rng.random()
    row = best
    for a in range(actions.rows.shape[0]):
        if a != best:
            u -= _probability(policy, state, actions, best, a)
            if u < 0.0:
                row = a
                break
    estimate = dot(actions.rows[row], state.theta)
    return row, estimate, estimate, 0.0


@probabilities.case(InverseGap)
def _probabilities(policy: Any, state: State, actions: DecisionSet, out: Vector) -> None:
    best, rest = _best(policy, state, actions), 1.0
    for a in range(out.shape[0]):
        if a != best:
            out[a] = _probability(policy, state, actions, best, a)
            rest -= out[a]
    out[best] = rest
