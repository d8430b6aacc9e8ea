"""Thompson sampling on the rewards that have returned."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import not_negative, parameters, positive
from belated.core.linalg import dot, solve_upper
from belated.core.protocols import Estimator, Family, choose, factor_precision
from belated.core.pruning import DecisionSet, most_optimistic
from belated.core.state import WORK, State
from belated.estimators import penalised_mle

SAMPLE = 2  # row of State.work


@parameters
class Thompson(NamedTuple):
    """Play what is best for a parameter drawn from the posterior of the returned rewards.

    The prior is normal, N(0, prior_sd^2 I). For Gaussian rewards the posterior is exact, N(theta,
    sd^2 W^-1) with ridge ``lam = sd^2 / prior_sd^2``; for other families it is Laplace's, N(theta,
    a(phi) H^-1) with theta the posterior mode and H the Hessian there, up to ``drift``. Missing
    rewards are ignored, and nothing is inflated for them (DTS-GLCB of Blanchet, Xu and Zhou, from
    memory of the paper). No confidence set.

    Parameters
    ----------
    prior_sd
        Standard deviation of each coordinate of theta_star before any reward.
    scale
        Factor on the standard deviation of the draw; 0 is greedy.
    drift
        The covariance is within the factors ``e^-drift`` and ``e^drift`` of Laplace's.

    References
    ----------
    O. Chapelle, L. Li: An Empirical Evaluation of Thompson Sampling. NeurIPS 2011.
    D. Russo, B. Van Roy: Learning to Optimize via Posterior Sampling. Math. Oper. Res. 2014.
    """

    prior_sd: float = 1.0
    scale: float = 1.0
    drift: float = 0.1
    lam: float | None = None
    a_phi: float | None = None

    def checked(self) -> "Thompson":
        """Raise where a parameter does not fit."""
        return self._replace(
            prior_sd=positive("prior_sd", self.prior_sd),
            scale=not_negative("scale", self.scale),
            drift=positive("drift", self.drift),
        )

    def resolve(self, family: Family, dim: int, max_norm: float) -> "Thompson":
        """Derive the ridge from prior and family; a ``lam`` that was passed is replaced."""
        self = self.checked()
        return self._replace(lam=family.a_phi / self.prior_sd**2, a_phi=family.a_phi)

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The posterior mode."""
        if self.lam is None:
            raise ValueError("resolve the policy first")
        return penalised_mle(
            family,
            dim,
            max_norm,
            m1=1.0,  # of no effect: the penalty is given, and there is no ball
            lam=self.lam,
            kappa=1.0,
            constrained=False,
            drift=self.drift,
        )


@choose.case(Thompson)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    d, sample, U = state.theta.shape[0], state.work[SAMPLE], state.work[WORK:]
    for i in range(d):
        sample[i] = rng.standard_normal()
    factor_precision(state.fit, state, U)
    solve_upper(U, sample)
    sd = policy.scale * math.sqrt(policy.a_phi)
    for i in range(d):
        sample[i] = state.theta[i] + sd * sample[i]
    row, score, _, _ = most_optimistic(sample, state.W_inv, state.cap, 0.0, actions, state.work)
    return row, score, dot(actions.rows[row], state.theta), 0.0
