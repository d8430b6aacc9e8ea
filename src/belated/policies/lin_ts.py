"""Linear Thompson sampling with the inflation of Agrawal and Goyal (2013)."""

import math
from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import Flag, NotNegative, Positive, Probability, parameters, resolved
from belated.core.jit import kernel
from belated.core.types import Matrix, Vector
from belated.model.protocols import Estimator, Family, accepted, choose, score_law
from belated.model.state import DECIDED, WORK, State
from belated.numerics.linalg import cholesky, solve_upper
from belated.numerics.pruning import DecisionSet
from belated.policies.shared.constants import has_identity_mean, noise_scale
from belated.policies.shared.sampling import (
    SAMPLE,
    fill_normal,
    fill_scores,
    play_best,
    unconfined_mle,
)


@parameters
class LinTS(NamedTuple):
    """Thompson sampling for linear rewards, the draw inflated as its regret bound asks.

    Plays ``argmax x'theta~`` with theta~ drawn from N(theta, v^2 W^-1): theta is ridge regression
    on the returned rewards, ``W = lam I + sum of x x'`` over the same rounds, and in round t

        v = R sqrt(9 d log(t / delta)),

    or ``v = R`` without the inflation. No confidence set.

    Parameters
    ----------
    delta
        Probability with which the regret bound may fail; of no effect without the inflation.
    lam
        Ridge.
    R
        Sub-Gaussian scale of the noise; that of the family by default.
    inflated
        False for ``v = R``, which has no such bound and is what is played in practice (Kveton et
        al. 2020, Sections 4.5 and 5.1).
    scale
        Factor on v; 0 is greedy.

    Assumptions
    -----------
    Mean rewards are ``x'theta_star`` with ``||x|| <= 1`` and ``||theta_star|| <= 1``; the noise is
    R-sub-Gaussian; ``lam = 1``, ``scale = 1``, inflated; rewards that return at once.

    Cost
    ----
    A decision O(d^3 + K d), a fresh Cholesky factor being needed; a returned reward O(d^2).

    Deviations
    ----------
    Algorithm 1 is as printed but for v. The ICML version prints ``v = R sqrt((24 / eps) d log(1 /
    delta))`` with eps in (0, 1) for the user to choose (Section 2.2), 1 / log T where T is known
    (Remark 2). The v used here is from memory of the authors' later version on arXiv, which could
    not be read; with that eps the printed v is the larger one for delta <= 1 / e and T >= 3. W and
    theta count returned rewards only; t is the number of the round: a union bound over rounds.

    References
    ----------
    S. Agrawal, N. Goyal: Thompson Sampling for Contextual Bandits with Linear Payoffs. ICML 2013.
    """

    delta: Probability = 0.05
    lam: Positive = 1.0
    R: Positive | None = None
    inflated: Flag = True
    scale: NotNegative = 1.0

    def refuses(self, family: Family) -> str:
        """Returns why it refuses this family: the mean must be linear."""
        return "" if has_identity_mean(family) else "is for rewards with mean x'theta only"

    def resolve(self, family: Family, dim: int, max_norm: float) -> "LinTS":
        """Returns the policy with its open parameters filled in."""
        self = accepted(self, family)
        return resolved(self, R=noise_scale(self, family))

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """Ridge regression."""
        return unconfined_mle(family, dim, max_norm, self.lam)


@kernel
def _sd(policy: Any, state: State) -> float:
    """Returns v, times the scale."""
    v = policy.scale * policy.R
    if policy.inflated:
        d, t = state.theta.shape[0], state.counts[DECIDED] + 1
        v *= math.sqrt(9.0 * d * math.log(t / policy.delta))
    return float(v)


@choose.case(LinTS)
def _choose(
    policy: Any, state: State, actions: DecisionSet, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    v, sample, U = _sd(policy, state), state.work[SAMPLE], state.work[WORK:]
    fill_normal(sample, rng)
    cholesky(state.W, 0.0, U)
    solve_upper(U, sample)
    for i in range(sample.shape[0]):
        sample[i] = state.theta[i] + v * sample[i]
    row, score, estimate = play_best(sample, state, actions)
    return row, score, estimate, 0.0


@score_law.case(LinTS)
def _score_law(policy: Any, state: State, actions: DecisionSet, mean: Vector, root: Matrix) -> int:
    U = state.work[WORK:]
    cholesky(state.W, 0.0, U)
    return fill_scores(state.theta, U, _sd(policy, state), actions, mean, root)
