"""Thompson sampling on the rewards that have returned."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Positive, derives, parameters, resolved
from belated.core.types import Matrix, Vector
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    factor_precision,
    needs_no_bound,
    score_law,
)
from belated.model.state import WORK, State
from belated.numerics.linalg import solve_upper
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.sampling import (
    SAMPLE,
    fill_normal,
    fill_scores,
    play_best,
    unconfined_mle,
)


@needs_no_bound
@derives("lam", "a_phi")
@parameters
class Thompson(NamedTuple):
    """Play what is best for a parameter drawn from the posterior of the returned rewards.

    The prior is N(0, prior_sd^2 I). For Gaussian rewards the posterior is exact, N(theta, sd^2
    W^-1) with ridge ``lam = sd^2 / prior_sd^2``; for other families it is Laplace's, N(theta,
    a(phi) H^-1) with theta the posterior mode and H the Hessian there, up to ``drift``. Missing
    rewards are ignored, and nothing is inflated for them: this is DTS-GLCB, the Thompson sampling
    of Blanchet, Xu and Zhou for delayed rewards. For rewards with a(phi) = 1 it is GLM-TSL of
    Kveton et al. (2020), their (4) and (5) in their Algorithm 1 with a = scale, plus a prior. No
    confidence set.

    Parameters
    ----------
    prior_sd
        Standard deviation of each coordinate of theta_star before any reward.
    scale
        Factor on the standard deviation of the draw; 0 is greedy. Kveton et al. prove their Theorem
        3 for ``(R sqrt(L) / kappa) sqrt(d log(T / d) + 2 log T)``, L and kappa the largest and the
        least slope of the mean, and play 1 in practice.
    drift
        The covariance is within the factors ``e^-drift`` and ``e^drift`` of Laplace's.

    Assumptions
    -----------
    None: no guarantee is claimed. With theta_star drawn from the prior and Gaussian rewards that
    return at once, that of posterior sampling in Bayesian regret holds.

    Cost
    ----
    A decision O(d^3 + K d): a fresh Cholesky factor, then one inner product per action. A returned
    reward O(d^2) for Gaussian rewards, else as in Delayed OFU-GLM, and a pass over the data
    whenever the estimate has drifted away from where the Hessian is kept.

    Deviations
    ----------
    DTS-GLCB is from memory of Blanchet et al. (2024), which could not be read: a posterior given
    the returned rewards, drawn from without inflation. GLM-TSL has no prior; it explores until the
    least eigenvalue of the sum of x x' reaches what its Theorem 3 says, or, in the experiments of
    its paper, plays d independent actions first, where here the prior does for both. Prior and
    approximation are ours; ``PolyaGamma`` draws from the exact posterior of logistic rewards.

    References
    ----------
    O. Chapelle, L. Li: An Empirical Evaluation of Thompson Sampling. NeurIPS 2011.
    D. Russo, B. Van Roy: Learning to Optimize via Posterior Sampling. Math. Oper. Res. 2014.
    B. Kveton, M. Zaheer, Cs. Szepesvari, L. Li, M. Ghavamzadeh, C. Boutilier: Randomized
    Exploration in Generalized Linear Bandits. AISTATS 2020.
    J. Blanchet, R. Xu, Z. Zhou: Delay-Adaptive Learning in Generalized Linear Contextual Bandits.
    Math. Oper. Res. 2024.
    """

    prior_sd: Positive = 1.0
    scale: NotNegative = 1.0
    drift: Positive = 0.1

    def resolve(self, family: Family, dim: int, max_norm: float) -> "Thompson":
        """Derive the ridge from prior and family."""
        self = accepted(self, family)
        return resolved(self, lam=family.a_phi / self.prior_sd**2, a_phi=family.a_phi)

    def estimator(self: Any, family: Family, dim: int, max_norm: float) -> Estimator:
        """The posterior mode."""
        return unconfined_mle(family, dim, max_norm, self.lam, self.drift)


@choose.case(Thompson)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    sample, U = state.work[SAMPLE], state.work[WORK:]
    fill_normal(sample, rng)
    factor_precision(state.fit, state, U)
    solve_upper(U, sample)
    sd = policy.scale * math.sqrt(policy.a_phi)
    for i in range(sample.shape[0]):
        sample[i] = state.theta[i] + sd * sample[i]
    row, score, estimate = play_best(sample, state, actions)
    return row, score, estimate, 0.0


@score_law.case(Thompson)
def _score_law(policy: Any, state: State, actions: DecisionSet, mean: Vector, root: Matrix) -> int:
    U = state.work[WORK:]
    factor_precision(state.fit, state, U)
    sd = policy.scale * math.sqrt(policy.a_phi)
    return fill_scores(state.theta, U, sd, actions, mean, root)
