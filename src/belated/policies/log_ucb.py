"""Logistic-UCB-1 of Faury, Abeille, Calauzenes and Fercoq (2020).

Why the set holds. Let F be the logistic loss of the returned rewards plus ``alpha / 2
||theta||^2``, H its Hessian, the paper's (4), and g the map of its (3), the sum of mu(x'theta) x
plus alpha theta: the gradient of F is g(theta) - g(theta_hat), theta_hat the minimiser over all of
R^d. Let theta be the minimiser over the ball and e = theta_star - theta. theta_star is in the ball,
so the variational inequality says (g(theta) - g(theta_hat))'e >= 0. The mean value theorem gives
g(theta_star) - g(theta) = G e with G the average of H over the segment, and therefore

    ||e||_G^2 = (g(theta_star) - g(theta))'e <= (g(theta_star) - g(theta_hat))'e
             <= ||g(theta_star) - g(theta_hat)||_{G^-1} ||e||_G.

Lemma 10 of the paper is G >= H(theta_star) / (1 + 2 S), and its Lemma 1 bounds the norm of
g(theta_star) - g(theta_hat) for H(theta_star)^-1 by gamma, in all rounds at once with probability 1
- delta. Hence ||e||_G <= sqrt(1 + 2 S) gamma; G >= kappa W turns that into the set. The printed
Lemma 2 has 2 sqrt(1 + 2 S): its projection (8) moves the estimate by up to gamma once more.
"""

import math
from typing import Any, NamedTuple

from belated.core.arguments import (
    Positive,
    Probability,
    Tolerance,
    Whole,
    derives,
    parameters,
    resolved,
)
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    deterministic,
    radius,
    sqrt_beta,
)
from belated.model.state import State
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.constants import is_logistic, least_slope_of
from belated.policies.shared.logistic_radius import logistic_gamma
from belated.policies.shared.optimism import certified_width, optimistic_mean

STEEPEST = 0.25  # slope of the logistic function at zero


@deterministic
@derives("lam", "max_norm", "family")
@parameters
class LogUCB1(NamedTuple):
    """Logistic rewards, optimism on their scale, with a width that has ``kappa^-1/2`` only.

    Plays ``argmax mu(x'theta) + (radius / 4) ||x||_{W^-1}`` where theta minimises the logistic loss
    of the returned rewards plus ``alpha / 2 ||theta||^2`` over the ball of radius m1, ``W = (alpha
    / kappa) I + sum of x x'`` over the same n rounds, and, for actions of length at most 1,

        sqrt_beta = kappa^-1/2 (1 + 2 m1)^1/2 gamma,
        gamma = sqrt(alpha) (m1 + 1/2)
                + (2 / sqrt(alpha)) [log(1 / delta) + (d / 2) log(1 + n / (4 d alpha)) + d log 2].

    For a ``max_norm`` of X the same holds for x / X, X theta and alpha / X^2. That is Algorithm 1
    of the paper with gamma from its Section 3.2; the proof is in ``policies/log_ucb.py``.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    alpha
        Ridge in the loss, lambda in the paper. The default is ``d log(2 + horizon) max_norm^2``,
        the choice of the paper's Theorem 2, where a horizon is known, else ``d max_norm^2``: the
        set holds for any.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.
        The radius is widened by the certified distance.
    kappa
        Least slope of the mean over ``|x'theta| <= max_norm m1``, the inverse of the paper's.
    horizon
        Number of rounds, which only sets ``alpha``. A simulation fills it in.

    Assumptions
    -----------
    ``||theta_star|| <= m1``, rewards in [0, 1] with a logistic mean, and delays that do not depend
    on the reward. Families with another mean or range are refused.

    Cost
    ----
    A decision O(K d), K values of mu, and O(d^2) for each of the few actions that are scored; a
    returned reward O(d^2), or O(d^3) up to 30 dimensions, and a rare pass over the data.

    Deviations
    ----------
    Sums run over returned rewards, and their number n stands for the paper's t, which is one more
    without delay. The estimate over the ball stands for the paper's projection (8), which saves the
    factor of 2 in its bonus, ``(1/4) sqrt(4 + 8 S) sqrt(kappa) gamma ||x||`` (Lemma 2, with the
    paper's kappa and S = m1). Theorem 2 sets lambda = d log T, ours is d log(2 + T), so that one
    round has a ridge, too. Logistic-UCB-2 (Algorithm 2) is not offered: its admissible log-odds are
    one more constraint per round.

    References
    ----------
    L. Faury, M. Abeille, C. Calauzenes, O. Fercoq: Improved Optimistic Algorithms for Logistic
    Bandits. ICML 2020.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    alpha: Positive | None = None
    tol: Tolerance = 1e-2
    kappa: Positive | None = None
    horizon: Whole | None = None

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: the width is for the logistic mean only."""
        fits = is_logistic(family) and family.support.high == 1.0
        return "" if fits else "needs rewards in [0, 1] with a logistic mean"

    def resolve(self, family: Family, dim: int, max_norm: float) -> "LogUCB1":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        kappa = least_slope_of(self, family, max_norm)
        alpha = self.alpha
        if alpha is None:
            rounds = 1.0 if self.horizon is None else math.log(2.0 + self.horizon)
            alpha = dim * rounds * max_norm**2
        values = {"alpha": alpha, "kappa": kappa, "lam": alpha / kappa}
        return resolved(self, **values, max_norm=max_norm, family=family)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The penalised maximum likelihood estimate in the ball."""
        return penalised_mle(
            family, dim, max_norm, m1=self.m1, lam=self.lam, kappa=self.kappa, tol=self.tol
        )


@sqrt_beta.case(LogUCB1)
def _sqrt_beta(policy: Any, state: State) -> float:
    S = policy.max_norm * policy.m1  # of actions scaled to length 1
    return math.sqrt((1.0 + 2.0 * S) / policy.kappa) * logistic_gamma(policy, state, policy.alpha)


radius.case(LogUCB1)(certified_width)


@choose.case(LogUCB1)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: None
) -> tuple[int, float, float, float]:
    return optimistic_mean(policy, state, STEEPEST, radius(policy, state), actions)
