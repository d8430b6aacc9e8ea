"""Inverse gap weighting: a probability for every action, known exactly."""

from typing import Any, NamedTuple

import numpy as np

from belated.core.arguments import NotNegative, Positive, Tolerance, derives, parameters, resolved
from belated.core.jit import allocating_kernel, kernel
from belated.core.types import Vector
from belated.estimators.laplace.fit import SILENT
from belated.model.protocols import (
    Estimator,
    Family,
    accepted,
    choose,
    mean,
    probabilities,
    takes_sparse_rows,
)
from belated.model.state import OBSERVED, State
from belated.numerics.entries import inner, n_rows
from belated.numerics.row_draws import drawn_row
from belated.policies.shared.learnt_prior import laplace, noise_of


@takes_sparse_rows
@derives("family", "learns_dispersion", "dispersion")
@parameters
class InverseGap(NamedTuple):
    """Play the others the less often, the further their mean is below the best: SquareCB.

    With mu_a the estimated mean rewards of K actions, b the best of them and n returned rewards,
    every other action is played with the probability

        p_a = 1 / (K + gamma (mu_b - mu_a)),      gamma = gamma_scale n^exponent,

    and b with the rest, 1 / K at least. The estimate is that of the default, ``AdaptiveThompson``:
    the mode of the posterior, with one prior variance per group of features learnt from the same
    rewards. Propensities are exact, and none is zero. No confidence set.

    Parameters
    ----------
    gamma_scale, exponent
        As above; 0 for gamma_scale is uniform play. Vowpal Wabbit takes 10 and 0.5. Where rewards
        are rare, gaps are small and that explores for long: 40 earned more in three worlds of
        docs/league.md, on other copies than those played there.
    prior_sd, strength, tol
        As in ``AdaptiveThompson``: the prior before any reward, how many coefficients it counts
        for when variances are learnt, and how exact the estimate is.

    Assumptions
    -----------
    None: no guarantee is claimed. Theorem 1 of Foster and Rakhlin needs rewards in [0, 1] that
    return at once and a gamma of the order of ``sqrt(K T / R)``, R the regret of the estimator in
    squared error over T rounds.

    Cost
    ----
    A decision: O(K s) with rows of s nonzero entries. A returned reward: as in
    ``AdaptiveThompson``, O(d^2), taken in by blocks, and O(d^3 + n s^2) when their number has grown
    by half.

    Deviations
    ----------
    Algorithm 1 of Foster and Rakhlin (SquareCB) with mu = K, for rewards, not losses. gamma grows
    with the returned rewards, where the paper fixes it for T rounds: what the estimate knows is
    what has returned. Open decisions whose silence is learnt from count as returned, and all count
    in full, however old, where a half_life lets the estimate forget them. The estimate is that of
    the family's likelihood, where the paper takes any online estimator of squared error. Gaps count
    in units of the reward: for rewards that are not between 0 and 1, gamma_scale should be divided
    by their range.

    References
    ----------
    D. J. Foster, A. Rakhlin: Beyond UCB: Optimal and Efficient Contextual Bandits with Regression
    Oracles. ICML 2020.
    N. Abe, P. M. Long: Associative Reinforcement Learning using Linear Probabilistic Concepts. ICML
    1999.
    """

    gamma_scale: NotNegative = 40.0
    exponent: NotNegative = 0.5
    prior_sd: Positive = 0.5
    strength: Positive = 1.0
    tol: Tolerance = 0.1

    def resolve(self, family: Family, dim: int, max_norm: float) -> "InverseGap":
        """Fill in the family, for its mean, and whether its dispersion is learnt."""
        return resolved(accepted(self, family), family=family, **noise_of(family))

    def estimator(self, family: Family, dim: int, max_norm: float) -> Estimator:
        """The mode of Laplace's posterior."""
        return laplace(self)


@probabilities.case(InverseGap)
def _probabilities(policy: Any, state: State, actions: Any, out: Vector) -> None:
    best, K = 0, out.shape[0]
    for a in range(K):
        out[a] = mean(policy.family, inner(actions, a, state.theta))
        best = a if out[a] > out[best] else best
    n = float(state.counts[OBSERVED]) + state.fit.scalars[SILENT]
    gamma, highest, rest = policy.gamma_scale * n**policy.exponent, out[best], 1.0
    for a in range(K):
        if a != best:
            gap = highest - out[a] if out[a] < highest else 0.0  # both may be infinite
            out[a] = 1.0 / (K + gamma * gap)
            rest -= out[a]
    out[best] = rest


@choose.case(InverseGap)
@kernel
def _choose(
    policy: Any, state: State, actions: Any, rng: np.random.Generator
) -> tuple[int, float, float, float]:
    return _draw(policy, state, actions, rng.random())


@allocating_kernel
def _draw(policy: Any, state: State, actions: Any, u: float) -> tuple[int, float, float, float]:
    shares = np.empty(n_rows(actions))
    probabilities(policy, state, actions, shares)
    row = drawn_row(shares, u)
    estimate = inner(actions, row, state.theta)
    return row, estimate, estimate, 0.0
