"""GLM-UCB of Filippi, Cappe, Garivier and Szepesvari (2010): a bonus on the scale of the reward."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import (
    Positive,
    Probability,
    Tolerance,
    Whole,
    derives,
    parameters,
    resolved,
)
from belated.core.generic import generic
from belated.core.types import Vector
from belated.estimators import penalised_mle
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    probabilities,
    radius,
    sqrt_beta,
)
from belated.model.state import OBSERVED, State
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.constants import derive, known_horizon
from belated.policies.shared.exploration import (
    explore,
    explored,
    fill_certain,
    fill_equal,
    width_once_explored,
)
from belated.policies.shared.optimism import certified_width, optimistic_mean


@derives("slope", "max_norm", "family")
@parameters
class GLMUCB(NamedTuple):
    """Optimism on the scale of the reward, ``mu(x'theta) + rho ||x||_{W^-1}``.

    Plays at random until the rounds whose reward has returned span the space,
    ``lambda_min(sum of x x') >= explore_until``. Then theta is their maximum likelihood estimate in
    the ball of radius m1, n their number, T the number of rounds, L_mu the greatest slope of the
    mean, and

        rho = 2 (L_mu R / kappa) k sqrt(2 d log(n + 1) log(2 d T / delta)),
        k = sqrt(3 + 2 log(1 + 2 max_norm^2 / explore_until)).

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``.
    delta
        Probability with which the confidence set may ever fail.
    kappa
        Least slope of the mean over ``|x'theta| <= max_norm m1``.
    R
        Sub-Gaussian scale of the noise; the family's by default. The paper has the largest reward.
    horizon
        T. A simulation fills it in.
    explore_until
        Least eigenvalue of the returned design that ends the exploration: lambda_0 of the paper.
    lam
        A ridge that keeps the first matrices invertible, so small that it does not matter later.
    tol
        Largest certified distance of the estimate from the exact one, in the norm of the Hessian.

    Assumptions
    -----------
    ``||theta_star|| <= m1``, R-sub-Gaussian noise, and delays that do not depend on the reward.
    ``radius`` is ``rho / L_mu``, in the norm of W. It is more than what the method of mixtures
    gives for the same estimate, which proves it again.

    Cost
    ----
    A decision O(K d), K values of mu, and O(d^2) for each of the few actions that are scored, while
    exploring O(d^3); a returned reward O(d^2), or O(d^3) up to 30 dimensions, and a rare pass over
    the data.

    Deviations
    ----------
    Sums run over returned rewards, and n + 1 stands for the paper's t: the two are equal without
    delay. The estimate over the ball stands for the paper's projection; half of rho would do then,
    and is not taken. The paper starts with d independent actions; here any are played until they
    span the space. rho is from public code and memory of Filippi et al. (2010), which could not be
    read. What others print of it agrees: a projection in the norm of W (Faury et al. 2020, Remark
    1; Li et al. 2017, Section 4.1), a first phase that makes W invertible (Li et al., Section 4.1),
    and a regret of order ``(1 / kappa) d sqrt(T) log(T)^(3/2)`` (Faury et al., Table 1), which is
    rho times the sum of the norms.

    References
    ----------
    S. Filippi, O. Cappe, A. Garivier, C. Szepesvari: Parametric Bandits: The Generalized Linear
    Case. NeurIPS 2010.
    """

    m1: Positive = 1.0
    delta: Probability = 0.05
    kappa: Positive | None = None
    R: Positive | None = None
    horizon: Whole | None = None
    explore_until: Positive = 0.01
    lam: Positive = 1e-6
    tol: Tolerance = 1e-2

    def resolve(self, family: Family, dim: int, max_norm: float) -> "GLMUCB":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        known_horizon(self)
        R, kappa, _, _ = derive(self, family, max_norm)
        slope = float(family.lipschitz(max_norm * self.m1))
        return resolved(self, kappa=kappa, R=R, slope=slope, max_norm=max_norm, family=family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The maximum likelihood estimate in the ball, penalised by next to nothing."""
        return penalised_mle(
            family, dim, max_norm, m1=self.m1, lam=self.lam, kappa=self.kappa, tol=self.tol
        )


@derives("slope", "family")
@parameters
class GLMUCBPractical(NamedTuple):
    """GLM-UCB with ``sqrt(log(n + 1))`` in place of rho, as in the experiments of its paper.

    Everything else is as in ``GLMUCB``. There is no confidence set.

    Parameters
    ----------
    m1
        Bound on ``||theta_star||``: the estimate is sought in that ball.
    explore_until, lam, tol
        As in ``GLMUCB``.

    Assumptions
    -----------
    None: no guarantee is claimed.

    Cost
    ----
    As ``GLMUCB``.

    Deviations
    ----------
    As ``GLMUCB``.

    References
    ----------
    S. Filippi, O. Cappe, A. Garivier, C. Szepesvari: Parametric Bandits: The Generalized Linear
    Case. NeurIPS 2010.
    """

    m1: Positive = 1.0
    explore_until: Positive = 0.01
    lam: Positive = 1e-6
    tol: Tolerance = 1e-2

    def resolve(self, family: Family, dim: int, max_norm: float) -> "GLMUCBPractical":
        """Derive the greatest slope of the mean."""
        slope = float(family.lipschitz(max_norm * self.m1))
        return resolved(accepted(self, family), slope=slope, family=family)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The maximum likelihood estimate in the ball, penalised by next to nothing."""
        return penalised_mle(family, dim, max_norm, m1=self.m1, lam=self.lam, tol=self.tol)


@sqrt_beta.case(GLMUCB)
def _sqrt_beta(policy: Any, state: State) -> float:
    d, n = state.theta.shape[0], state.counts[OBSERVED]
    start = math.log1p(2.0 * policy.max_norm**2 / policy.explore_until)
    spread = 2.0 * d * math.log(n + 1.0) * math.log(2.0 * d * policy.horizon / policy.delta)
    return 2.0 * policy.R / policy.kappa * math.sqrt((3.0 + 2.0 * start) * spread)


radius.case(GLMUCB)(width_once_explored)


@generic
def _reach(policy: Any, state: State) -> float:  # type: ignore[empty-body]
    """Returns rho / L_mu, on the scale of x'theta."""


_reach.case(GLMUCB)(certified_width)


@_reach.case(GLMUCBPractical)
def _practical_reach(policy: Any, state: State) -> float:
    return math.sqrt(math.log(state.counts[OBSERVED] + 1.0)) / float(policy.slope)


@choose.case(GLMUCB, GLMUCBPractical)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    if not explored(policy, state):
        return explore(state, actions, rng)
    return optimistic_mean(policy, state, policy.slope, _reach(policy, state), actions)


@probabilities.case(GLMUCB, GLMUCBPractical)
def _probabilities(policy: Any, state: State, actions: DecisionSet, out: Vector) -> None:
    if explored(policy, state):
        reach = _reach(policy, state)
        fill_certain(optimistic_mean(policy, state, policy.slope, reach, actions)[0], out)
    else:
        fill_equal(out)
