"""Thompson sampling as wide as the confidence set: Abeille and Lazaric (2017)."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Positive, Probability, Whole, parameters, resolved
from belated.core.types import Matrix, Vector
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    radius,
    score_law,
    sqrt_beta,
)
from belated.model.state import WORK, State
from belated.numerics.linalg import cholesky, solve_upper
from belated.numerics.lowered.products import quadratic
from belated.numerics.pruning import DecisionSet, most_optimistic
from belated.policies.shared.constants import derive, known_horizon, width_at
from belated.policies.shared.optimism import certified_width
from belated.policies.shared.sampling import SAMPLE, fill_normal, fill_scores, play_best


@parameters
class InflatedTS(NamedTuple):
    """Thompson sampling with draws as wide as the confidence set, for all families.

    Plays ``argmax x'theta~``, ``theta~ = theta + sqrt_beta W^-1/2 xi`` with xi standard normal:
    theta is the penalised maximum likelihood estimate of the returned rewards in the ball of radius
    m1, W the design matrix of the same rounds, and sqrt_beta the width of Delayed OFU-GLM,

        sqrt_beta = sqrt(lam) m1 + (R / kappa) sqrt(log det(W / lam) + 2 log(1 / delta')),

    at ``delta' = delta / (4 horizon)``. The confidence set is that ellipsoid.

    Parameters
    ----------
    m1, lam, kappa, R
        As in ``DelayedOFUGLM``.
    delta
        Probability with which the regret bound may fail.
    scale
        Factor on the draw, not on the confidence set. 0 is greedy; the guarantee goes when it is
        below 1.
    horizon
        Number of rounds. A simulation fills it in.

    Assumptions
    -----------
    ``||theta_star|| <= m1``, noise that is R-sub-Gaussian, a mean whose slope is kappa at least
    where ``|x'theta| <= max_norm m1``, and delays that do not depend on the reward: then the set
    holds theta_star in all rounds with probability 1 - delta'. The regret bound is for rewards
    that return at once, and for ``scale = 1``.

    Cost
    ----
    A decision O(d^3 + K d) and the few actions that could have the highest upper bound, O(d^2)
    each. A returned reward as in Delayed OFU-GLM.

    Deviations
    ----------
    The draw is Abeille and Lazaric's Equation (7) with normal eta, and ``delta' = delta / (4 T)``
    is line 1 of their Figure 1. Their width (5) bounds the determinant by ``(1 + t / lam)^d``; here
    the determinant itself is used, which is never wider. For generalised linear rewards their
    estimate (16) has no ball, c_mu is the least slope over all theta, and the width is divided by
    c_mu (Proposition 11); here the estimate and width are those of Delayed OFU-GLM, for which the
    set is proved, and the certified error of the estimate is added to the width. The width that a
    decision reports is half the distance from its lower bound to the highest upper bound of any
    action, so that the regret of the round is at most 2 L_mu times it even though the choice is not
    optimistic.

    References
    ----------
    M. Abeille, A. Lazaric: Linear Thompson Sampling Revisited. AISTATS 2017.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    lam: Positive | None = None
    kappa: Positive | None = None
    R: Positive | None = None
    scale: NotNegative = 1.0
    horizon: Whole | None = None

    def resolve(self, family: Family, dim: int, max_norm: float) -> "InflatedTS":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        known_horizon(self)
        R, kappa, lam, _ = derive(self, family, max_norm)
        return resolved(self, lam=lam, kappa=kappa, R=R)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        return penalised_mle(family, dim, max_norm, m1=self.m1, lam=self.lam, kappa=self.kappa)


@sqrt_beta.case(InflatedTS)
def _sqrt_beta(policy: Any, state: State) -> float:
    return width_at(policy, state, policy.delta / (4.0 * policy.horizon))


radius.case(InflatedTS)(certified_width)


@choose.case(InflatedTS)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    work, reach = state.work, radius(policy, state)
    sample, U = work[SAMPLE], work[WORK:]
    fill_normal(sample, rng)
    cholesky(state.W, 0.0, U)
    solve_upper(U, sample)
    for i in range(sample.shape[0]):
        sample[i] = state.theta[i] + policy.scale * reach * sample[i]
    row, score, estimate = play_best(sample, state, actions)
    _, highest, _, _ = most_optimistic(state.theta, state.W_inv, state.cap, reach, actions, work)
    norm = math.sqrt(max(0.0, quadratic(state.W_inv, actions.rows[row], work[0])))
    return row, score, estimate, 0.5 * (highest - estimate + reach * norm)


@score_law.case(InflatedTS)
def _score_law(policy: Any, state: State, actions: DecisionSet, mean: Vector, root: Matrix) -> int:
    sd, U = policy.scale * radius(policy, state), state.work[WORK:]
    cholesky(state.W, 0.0, U)
    return fill_scores(state.theta, U, sd, actions, mean, root)
